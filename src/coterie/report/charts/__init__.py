"""The page's charts, as Vega-Lite specifications without a theme: the page adds light or dark when
it draws them."""
