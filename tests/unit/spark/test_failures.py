"""Why Spark failed, out of what it raises and logs."""

from __future__ import annotations

import pytest

from lake.running.failures import find_reason

JOB = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most recent \
failure: Lost task 1.3 in stage 0.0 (TID 7) (10.0.0.5 executor 1): {cause}
	at java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
	at org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: {cause}
	... 1 more
"""
INNER = """java.io.IOException: Cannot run program "/x/python" (in directory "."): Exec failed, error: 2
	at java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1)
Caused by: java.io.IOException: error=2, No such file or directory"""
STARTED = """An error occurred while calling None.org.apache.spark.sql.SparkSession.
: java.lang.NullPointerException
	at x
"""
LOGGED = """26/11/25 21:00:00 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/0 is now RUNNING
26/11/25 21:00:00 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive! \
Giving up.
26/11/25 21:00:01 ERROR SparkContext: Error initializing SparkContext.
"""
JAVA_EXITED = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."


@pytest.mark.parametrize(
    ("raised", "logged", "expected"),
    [
        (
            JOB.format(cause="org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "task.py", line 1, in x\n'
            "lake.running.task.TaskFailedError: on h1, with /opt/python: "
            "ModuleNotFoundError: No module named 'pyarrow'\n"),
            "",
            "on h1, with /opt/python: ModuleNotFoundError: No module named 'pyarrow'; install pyarrow and"
            " adbc-driver-postgresql for that interpreter, or name another: PYSPARK_PYTHON",
        ),
        (
            JOB.format(cause=INNER),
            "",
            'on 10.0.0.5: IOException: Cannot run program "/x/python" (in directory "."): Exec failed, error: 2;'
            " install that interpreter on every host, or name one that is there: PYSPARK_PYTHON",
        ),
        (
            STARTED,
            LOGGED,
            "Application has been killed. Reason: All masters are unresponsive! Giving up.; give the driver the version"
            " of PySpark that the cluster has, see docs/how-to/spark-cluster.md",
        ),
        (
            "An error occurred while calling o1.x.\n"
            ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat y",
            LOGGED.replace("All masters are unresponsive! Giving up.", "Master removed our application: FAILED"),
            "Application has been killed. Reason: Master removed our application: FAILED; see the executors' standard"
            " error, in the work folder of each worker",
        ),
        (
            JAVA_EXITED,
            "Picked up JAVA_TOOL_OPTIONS: -Dx=y\nError occurred during initialization of VM\nToo small maximum heap\n",
            "Java ended before it ran Spark: Error occurred during initialization of VM, Too small maximum heap;"
            " correct JAVA_HOME, the options that you set for Java, or spark.driver.memory",
        ),
        (STARTED, "", "NullPointerException"),
        ("An error\n: java.io.IOException: No space left\n\tat x", "", "IOException: No space left"),
    ],
)  # fmt: skip
def test_the_cause_is_one_line(raised: str, logged: str, expected: str) -> None:
    assert find_reason(Exception(raised), logged) == expected
