# One replica. Settings: /etc/waitroom/waitroom.toml or WAITROOM_* (docs/configuration.md).
# For a build that is the same in a year, pin the digest that your registry names:
# docker build --build-arg PYTHON=python:3.13-slim-trixie@sha256:… (docs/docker.md).
ARG PYTHON=python:3.13-slim-trixie
FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Without pip, which nothing needs at run time.
RUN python -m venv --without-pip /opt/waitroom
WORKDIR /build
COPY constraints.txt pyproject.toml hatch_build.py README.md ./
COPY nginx/waitroom nginx/waitroom
COPY static static
COPY deploy/systemd deploy/systemd
COPY sidecar sidecar
COPY client client
# Into an environment of its own, so that one folder is all the next stage takes.
RUN pip --python /opt/waitroom/bin/python install --constraint constraints.txt \
    '.[memory,mysql,postgresql,sql]'

FROM ${PYTHON}
ARG REVISION=
LABEL org.opencontainers.image.title=Waitroom \
    org.opencontainers.image.description="A virtual waiting room beside nginx" \
    org.opencontainers.image.version=0.1.0 \
    org.opencontainers.image.revision=$REVISION
RUN groupadd --gid 10001 waitroom \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin waitroom
COPY --from=build /opt/waitroom /opt/waitroom
# In a container 127.0.0.1 is nobody's but its own. Publish the edge to nginx alone, and
# the ops port (8401) to nobody.
ENV PATH=/opt/waitroom/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WAITROOM_EDGE_LISTEN=0.0.0.0:8400 \
    WAITROOM_OPS_LISTEN=0.0.0.0:8401
# `waitroom` finds waitroom.toml here without being told, the health check too.
WORKDIR /etc/waitroom
# A number, because Kubernetes' runAsNonRoot cannot tell who a name is.
USER 10001:10001
EXPOSE 8400 8401
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s --retries=3 \
    CMD ["waitroom", "healthcheck"]
CMD ["waitroom", "serve"]
