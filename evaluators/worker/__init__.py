"""The untrusted side: a program that runs one candidate kernel and answers the judge's requests.

Imports the standard library, torch and this folder only, for it is started by path, in a process of its own.
"""
