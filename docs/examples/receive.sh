#!/bin/sh
# Work through changed rows with curl: receive up to ten, print them, acknowledge them. Ctrl-C ends it.
consumers=${PIPELINE_URL:-http://127.0.0.1:12312}/v1/consumers

post() {
    curl --silent --show-error --fail-with-body --json "$2" \
        ${PIPELINE_API_TOKEN:+--header "Authorization: Bearer $PIPELINE_API_TOKEN"} "$1"
}

post "$consumers" '{"name": "printer", "tables": ["public.*"], "start": "beginning"}' > /dev/null 2>&1 # perhaps it is there already
while items=$(post "$consumers/printer/receive" '{"max": 10, "wait": 20}'); do
    ids=$(printf '%s' "$items" | grep -o '"ack_id":"[0-9a-f-]*"' | cut -d : -f 2 | paste -s -d , -)
    [ -n "$ids" ] || continue
    printf '%s\n' "$items"
    post "$consumers/printer/ack" "{\"ack_ids\": [$ids]}" > /dev/null
done
