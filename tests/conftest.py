"""What every process that a test starts is to have in its environment."""

import os
from pathlib import Path

# A JVM that is gone in a minute has no use for the compiler that takes its time.
os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark" / "conf")
