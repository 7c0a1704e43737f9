"""The script that alembic executes to migrate, on the connection that database.py has opened."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
    version_table_pk=False,  # MariaDB would log a warning about the key's name each time
)
with context.begin_transaction():
    context.run_migrations()
