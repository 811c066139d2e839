"""How a store with SQL answers a page: from which index, in which order, and how far it looks. Pure.

Each search is a generator: it yields questions, gets the rows, and returns what it has found. A store asks them in its
dialect. Every question uses an index and reads a limited number of rows, so that a search takes about as long in a
large store as in a small one. A search that has looked at `MOST_LOOKED_AT` rows without finding enough stops there.
"""
