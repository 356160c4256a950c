"""Reports and tables as text and HTML, and images as SVG."""
