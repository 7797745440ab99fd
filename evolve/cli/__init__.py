"""The command line: `commands/` parse, call and print; `render/` formats what they show. May import all of ours."""
