"""Reports: what an archive says, drawn. Records in, curves and figures out; nothing here measures or decides."""
