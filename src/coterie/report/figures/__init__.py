"""The figures of the page. A file is a figure: its chart, the same as a table, and their section.

Charts are Vega-Lite specifications without a theme: the page adds light or dark when it draws them.
Fields are given as channels, `alt.X("round:Q")`, and not as texts: Altair takes a quarter of a
page's time to make channels of texts.
"""
