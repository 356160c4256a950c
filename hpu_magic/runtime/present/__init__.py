"""Reports and tables as text and HTML, and pictures as SVG."""
