"""Input of a run: problems, settings, presets and seed kernels; and all errors.

Imports nothing of ours. Reading a problem or a preset never imports torch.
"""
