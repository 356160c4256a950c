"""What operations cost on a card: hardware as published, constants as fitted, and the prices."""
