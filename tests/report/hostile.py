"""A name that would be markup, or the end of a script, wherever it is not kept as text."""

HOSTILE = "</script><script>alert('x')</script>\"'&<img src=x onerror=alert(1)>"
