"""From a plain dict of results to text, Markdown and pictures."""
