"""A stand-in for `spaces.GPU` that really forks and pickles, as ZeroGPU does."""

import inspect
import multiprocessing

FORK = multiprocessing.get_context("fork")


class ForkingGpu:
    """Like `spaces.GPU`: each call runs in a fork, and only pickles come and go."""

    def __init__(self):
        self.processes, self.seconds = [], []

    def __call__(self, *, duration):
        def decorate(task):
            assert inspect.isgeneratorfunction(task)

            def call(job):
                self.seconds.append(duration(job))
                given, (results, written), stopped = FORK.SimpleQueue(), FORK.Pipe(), FORK.Event()
                given.put(job)  # pickled here, read there

                def work():
                    for result in task(given.get()):
                        written.send(("yielded", result))
                        if stopped.is_set():
                            break
                    written.send(("ended", None))

                process = FORK.Process(target=work, daemon=True)
                process.start()
                self.processes.append(process)
                written.close()  # the other end is the fork's
                try:
                    yield from self._results(results)
                finally:
                    stopped.set()
                    results.close()
                    process.join()

            return call

        return decorate

    def _results(self, results):
        while True:
            try:
                kind, result = results.recv()
            except EOFError as error:
                raise RuntimeError("GPU task aborted") from error
            if kind == "ended":
                return
            yield result
