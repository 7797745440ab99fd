"""What is asked: problems, settings, presets, seed kernels, and the errors of asking wrongly.

Imports nothing of ours. Reading a problem or a preset never imports torch.
"""
