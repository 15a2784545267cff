"""The page's charts, as Vega-Lite specifications without a theme: the page adds light or dark when
it draws them.

Fields are given as channels, `alt.X("round:Q")`, and not as texts: Altair takes a quarter of a
page's time to make channels of texts.
"""
