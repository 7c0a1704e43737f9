"""Run the migrations by alembic, on the connection that storage/sql/database.py hands over."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
    version_table_pk=False,  # MariaDB would log each time that it names the key differently
)
with context.begin_transaction():
    context.run_migrations()
