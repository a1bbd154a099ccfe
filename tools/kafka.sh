#!/usr/bin/env bash
# Make sure that a Kafka broker is here for the tests and for `make kafka`. Its jars come from Maven Central, fetched by the
# Ivy that PySpark carries, so no Maven is needed. tools/kafka/jars.lock names every one of them with its SHA-256, and
# nothing is used that differs. It runs on the Java that Spark runs on.
#   tools/kafka.sh                fetch what jars.lock says; no time when it is here
#   tools/kafka.sh connector      fetch Spark's Kafka connector and spark-avro, as connector.lock says, for the tests of the source
#   tools/kafka.sh lock VERSION   resolve another version of Kafka and write jars.lock anew
# A mirror is named as Spark has it: DEFAULT_ARTIFACT_REPOSITORY in the environment.
# No repository can be reached: says so and ends well. The tests that need it then skip, and fail under CI=true.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

LOCK=tools/kafka/jars.lock
HOME_DIR=.venv/share/kafka
WHAT="Kafka $(awk '$3 == "kafka_2.13" { print $4 }' "$LOCK") (45 MB)"
if [ "${1:-}" = connector ]; then
    LOCK=tools/kafka/connector.lock
    HOME_DIR=.venv/share/spark-kafka
    WHAT="Spark's Kafka connector (10 MB)"
fi
# Kafka's own pom names no logging backend. slf4j-api is 1.7 there, so this one and not log4j-slf4j2-impl.
LOGGING="org.apache.logging.log4j log4j-slf4j-impl 2.25.4"

scratch=
trap 'rm -rf "$scratch"' EXIT
say() { printf 'setup-kafka: %s\n' "$@" >&2; }

ivy_settings() {
    local root=${DEFAULT_ARTIFACT_REPOSITORY:+root=\"$DEFAULT_ARTIFACT_REPOSITORY\"}
    cat <<EOF
<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints><timeout-constraint name="patience" connectionTimeout="10000" readTimeout="60000"/></timeout-constraints>
  <resolvers><ibiblio name="central" m2compatible="true" timeoutConstraint="patience" $root/></resolvers>
</ivysettings>
EOF
}

ivy_module() {  # from lines of: organisation name revision; $1 says whether to follow what they depend on
    echo '<ivy-module version="2.0"><info organisation="pakka" module="kafka-broker"/><dependencies>'
    while read -r organisation name revision; do
        echo "<dependency org=\"$organisation\" name=\"$name\" rev=\"$revision\" conf=\"default\" transitive=\"$1\"/>"
    done
    echo '</dependencies></ivy-module>'
}

fetch() {  # the module on stdin, into $scratch/jars; the file names carry all that the lock needs
    local java=java ivy=(.venv/lib/python3*/site-packages/pyspark/jars/ivy-*.jar)
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    ivy_settings >"$scratch/settings.xml"
    cat >"$scratch/ivy.xml"
    "$java" -cp "${ivy[0]}" org.apache.ivy.Main -settings "$scratch/settings.xml" -cache "$scratch/cache" \
        -ivy "$scratch/ivy.xml" -retrieve "$scratch/jars/[organisation]=[module]=[revision].[ext]" >"$scratch/log" 2>&1
}

sha256() { if command -v sha256sum >/dev/null; then sha256sum -- "$@"; else shasum -a 256 -- "$@"; fi; }
listed() {  # what was fetched, as the lock has it: sha256 organisation name revision
    (cd "$scratch/jars" && sha256 *.jar) | sed -E 's/^([0-9a-f]{64}) .([^=]+)=([^=]+)=(.+)\.jar$/\1 \2 \3 \4/' | LC_ALL=C sort -k 2
}

if [ "${1:-}" = lock ]; then
    scratch=$(mktemp -d)
    { echo "org.apache.kafka kafka_2.13 ${2:?which version of Kafka?}"; echo "$LOGGING"; } | ivy_module true | fetch ||
        { tail -n 40 "$scratch/log" >&2; exit 1; }
    listed >"$LOCK"
    say "$LOCK names $(wc -l <"$LOCK") jars of Kafka $2"
    exit 0
fi

! cmp -s "$LOCK" "$HOME_DIR/jars.lock" || exit 0

scratch=$(mktemp -d)
say "fetching $WHAT"
if ! cut -d ' ' -f 2- "$LOCK" | ivy_module false | fetch; then
    grep -E '[Ee]rror|not found' "$scratch/log" | head -n 3 >&2 || true
    say "$WHAT could not be fetched, so the tests marked \`kafka\` will be skipped; to run them, reach Maven Central or" \
        "name a mirror of it in DEFAULT_ARTIFACT_REPOSITORY, and type \`make setup-kafka\`"
    exit 0
fi
if ! difference=$(diff <(listed) "$LOCK"); then
    say "what was fetched is not what $LOCK says, so nothing of it is kept:" "$difference"
    exit 1
fi
for jar in "$scratch"/jars/*.jar; do mv "$jar" "$scratch/jars/$(basename "$jar" | sed -E 's/^[^=]+=([^=]+)=/\1-/')"; done
cp "$LOCK" "$scratch/jars/jars.lock"
# Moved in one step: a directory that is half there would be taken for whole by the next call.
mkdir -p "$(dirname "$HOME_DIR")"
rm -rf "$HOME_DIR" "$HOME_DIR.part"
cp -r "$scratch/jars" "$HOME_DIR.part" && mv "$HOME_DIR.part" "$HOME_DIR"
say "$WHAT is in $HOME_DIR"
