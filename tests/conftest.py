"""What every process that a test starts is to have in its environment."""

import os
from pathlib import Path

# A JVM that is gone in a minute has no use for the compiler that takes its time. But with
# the other one alone it has room for a fifth of the code, which is full after some tests:
# then it throws away and compiles again. Nor need it prove anew of each of Spark's 24,000
# classes that a Java compiler made it.
os.environ["JAVA_TOOL_OPTIONS"] = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions "
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m "
    "-XX:-BytecodeVerificationRemote"
)
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark" / "conf")
