"""The server of the pages: safe by its headers, and read-only because its archive is.

Text of the archive is not trusted: a kernel or a reply may hold markup. Jinja escapes it, and the Content-Security-
Policy allows no script, style or picture but the two files of `static/`, so that even an error of ours runs nothing.
"""

import sqlite3

from flask import Flask, Response, render_template
from werkzeug.exceptions import HTTPException, SecurityError

from kbevolve.configs.errors import KBEvolveError
from kbevolve.evolve.web.kernel_pages import kernel_pages
from kbevolve.evolve.web.rendering import prepare
from kbevolve.evolve.web.run_pages import run_pages
from kbevolve.evolve.web.snapshot import Snapshot

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def create_app(snapshot: Snapshot, *, hosts: list[str] | None = None) -> Flask:
    """The pages of an archive that was opened read-only.

    `hosts` are the names under which it may be asked for: a page elsewhere whose name points to this machine gets
    nothing. None allows every name.
    """
    app = Flask(__name__)
    app.config["TRUSTED_HOSTS"] = hosts
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = 3600
    prepare(app.jinja_env)
    app.jinja_env.globals["archive_path"] = snapshot.archive.path
    app.register_blueprint(run_pages(snapshot))
    app.register_blueprint(kernel_pages(snapshot))

    @app.after_request
    def protect(response: Response) -> Response:
        response.headers.update(HEADERS)
        if response.mimetype == "text/html":
            response.headers["Cache-Control"] = "no-store"  # a run goes on
        return response

    @app.errorhandler(SecurityError)
    def foreign(error: SecurityError) -> tuple[str, int, dict[str, str]]:
        return "This archive is browsed at 127.0.0.1 or localhost.\n", 400, {"Content-Type": "text/plain"}

    @app.errorhandler(HTTPException)
    def refused(error: HTTPException) -> tuple[str, int]:
        return render_template("error.html.jinja", title=error.name, words=error.description), error.code or 500

    @app.errorhandler(KBEvolveError)
    def missing(error: KBEvolveError) -> tuple[str, int]:
        return render_template("error.html.jinja", title="Not found", words=str(error)), 404

    @app.errorhandler(sqlite3.Error)
    @app.errorhandler(ValueError)
    @app.errorhandler(TypeError)
    def unreadable(error: Exception) -> tuple[str, int]:
        words = f"The archive holds a value that cannot be read here ({type(error).__name__}: {error})."
        return render_template("error.html.jinja", title="Not readable", words=words), 500

    return app
