"""Calculate the memory of a step that DeepSpeed runs, based on its configuration.

Each allocation follows the source code of DeepSpeed 0.19.8.
"""
