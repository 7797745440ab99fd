"""The untrusted side: a program that holds one candidate kernel and answers the judge's requests.

It is started by path, in a process of its own, and imports the standard library, torch and the files of this
folder only. The judge imports some of these files too (the wire format, the precision flags), never the reverse.
"""
