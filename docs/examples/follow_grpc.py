"""Print changes as they come over gRPC, and acknowledge each transaction: after a break it goes on where that ended.

In other languages, make the stubs from pipeline/rpc/protos/event_log.proto.
"""

import os
import sys
import time

import grpc

from pipeline.rpc.protos import event_log_pb2 as pb

NAME = sys.argv[1] if len(sys.argv) > 1 else "printer"
TOKEN = os.environ.get("PIPELINE_API_TOKEN")
METADATA = [("authorization", f"Bearer {TOKEN}")] if TOKEN else []
TEMPORARY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)  # it restarts; somebody else reads

# With TLS: grpc.secure_channel, and grpc.ssl_channel_credentials
server = os.environ.get("PIPELINE_GRPC", "127.0.0.1:50051")
channel = grpc.insecure_channel(server, [("grpc.max_receive_message_length", -1)])  # one event may be large
read = channel.unary_stream("/pipeline.v1.EventLog/Read", pb.ReadRequest.SerializeToString, pb.Transaction.FromString)
ack = channel.unary_unary("/pipeline.v1.EventLog/Ack", pb.AckRequest.SerializeToString, pb.AckReply.FromString)

while True:
    call = read(pb.ReadRequest(consumer=NAME, follow=True), metadata=METADATA)
    try:
        session = dict(call.initial_metadata() or ()).get("session")
        for transaction in call:
            for change in transaction.changes:
                print(change.seq, pb.Action.Name(change.action).lower(), change.table, change.record_pk, flush=True)
            if transaction.complete:  # not a part of a large one
                ack(pb.AckRequest(consumer=NAME, position=transaction.position, session=session), metadata=METADATA)
    except grpc.RpcError as error:
        print(error.details(), file=sys.stderr)
        if error.code() not in TEMPORARY:
            sys.exit(1)
        time.sleep(1)
