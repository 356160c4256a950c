"""The memory of a step that DeepSpeed runs, from its configuration.

Each allocation follows the source of DeepSpeed 0.19.8.
"""
