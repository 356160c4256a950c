"""How results are shown: a report or a table, as text and as HTML, and pictures in SVG."""
