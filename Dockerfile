FROM python:3.12-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/pipeline
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY pipeline pipeline
COPY alembic alembic
COPY spark spark
RUN pip wheel --quiet --no-deps --wheel-dir /wheels . \
 && /opt/pipeline/bin/pip install --quiet --constraint constraints.txt /wheels/*.whl

FROM python:3.12-slim
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data pipeline \
 && install --directory --owner pipeline --group pipeline --mode 0700 /data
COPY --from=build /opt/pipeline /opt/pipeline
ENV PATH=/opt/pipeline/bin:$PATH PIPELINE_DATA_DIR=/data PYTHONUNBUFFERED=1
# By number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 12312 50051
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["pipeline", "health"]
ENTRYPOINT ["pipeline"]
CMD ["serve"]
