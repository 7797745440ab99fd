"""Never ends, before it has defined anything."""

while True:
    pass


class ModelNew: ...
