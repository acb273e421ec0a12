# One image for every process; the command says which (docker-compose.yml, config/deploy).
FROM python:3.12-slim AS build
WORKDIR /build
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir uv
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY wainwright wainwright
COPY workers workers
COPY tasks tasks
COPY config config
RUN VIRTUAL_ENV=/venv /venv/bin/uv pip install --no-cache --compile-bytecode --constraint requirements.lock . \
    && /venv/bin/pip uninstall --yes uv pip

FROM python:3.12-slim
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin wainwright \
    && install -d -o wainwright -g wainwright /data /kube
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /home/wainwright
ENTRYPOINT []
CMD ["wainwright", "--help"]
