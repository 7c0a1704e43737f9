"""A shop written in Django as its tutorial does it, with a login, a form with a CSRF token, and an
upload."""

import os
from pathlib import Path

import django
from django import forms
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template import engines
from django.urls import include, path
from django.views.decorators.http import require_POST

FOLDER = Path(os.environ["SHOP"])
PAGE = "<!doctype html><title>{{ title }}</title><h1>{{ title }}</h1>{{ body }}{{ form }}"
FORM = """<form method=post action="{{ action }}" enctype=multipart/form-data>{% csrf_token %}
{{ fields.as_p }}<button>{{ title }}</button></form>"""

settings.configure(
    SECRET_KEY="of-a-test",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "shop.db"}},
    INSTALLED_APPS=[
        "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
        "django.contrib.messages", "django.contrib.admin",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "OPTIONS": {
        "context_processors": ["django.template.context_processors.request",
                               "django.contrib.auth.context_processors.auth",
                               "django.contrib.messages.context_processors.messages"],
        "loaders": [("django.template.loaders.locmem.Loader", {
            "registration/login.html": "<title>Log in</title><form method=post>{% csrf_token %}"
                                       "{{ form.as_p }}<button>Log in</button></form>",
        })],
    }}],
    LOGIN_REDIRECT_URL="/order/",
    MEDIA_ROOT=str(FOLDER),
)  # fmt: skip
django.setup()


class Order(forms.Form):
    """The form for an order, to which a file can be attached."""

    text = forms.CharField(max_length=200)
    file = forms.FileField(required=False)


def page(request: HttpRequest, title: str, body: str = "", form: str = "") -> HttpResponse:
    made = engines["django"].from_string(PAGE.replace("{{ form }}", "{{ form|safe }}"))
    return HttpResponse(made.render({"title": title, "body": body, "form": form}, request))


def home(request: HttpRequest) -> HttpResponse:
    return page(request, "Shop")


@login_required
def order(request: HttpRequest) -> HttpResponse:
    form = engines["django"].from_string(FORM)
    words = {"action": "/order/send/", "fields": Order(), "title": "Order"}
    return page(request, "Your order", form=form.render(words, request))


@require_POST
@login_required
def send(request: HttpRequest) -> HttpResponse:
    form = Order(request.POST, request.FILES)
    if not form.is_valid():
        return HttpResponse(str(form.errors), status=400)
    if upload := form.cleaned_data["file"]:
        (FOLDER / "uploaded").write_bytes(upload.read())
    (FOLDER / "ordered").write_text(form.cleaned_data["text"])
    return redirect("/orders/1/done/")


def done(request: HttpRequest, number: int) -> HttpResponse:
    return page(request, "Thank you", f"Order {number}: {(FOLDER / 'ordered').read_text()}")


urlpatterns = [
    path("", home),
    path("accounts/", include("django.contrib.auth.urls")),
    path("order/", order),
    path("order/send/", send),
    path("orders/<int:number>/done/", done),
]


def install() -> None:
    """Create the tables of the database, and a user."""
    from django.contrib.auth.models import User

    call_command("migrate", verbosity=0)
    User.objects.create_user("visitor", password="a-password")


application = get_wsgi_application()
