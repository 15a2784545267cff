"""Images: from files to pixels and inputs, what is kept of them on the disk, and how groups see them."""
