"""Legacy ways to ask for the device."""


def is_habana_available() -> bool:
    """Tell whether a card can be seen; simulated cards always can."""
    return True


def load_habana_module() -> None:
    """Do nothing: importing the bridge has loaded it."""
