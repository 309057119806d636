/**
 * Counts what a client asks of a Postgres server by the frames that it sends, so that a test needs
 * nothing of the server for it. A frame may come in any number of pieces.
 */
export function createStatementCounter() {
  let rest = Buffer.alloc(0);
  let started = false;
  let statements = 0;

  const take = (): boolean => {
    const headBytes = started ? 5 : 4;
    if (rest.length < headBytes) return false;
    const frameBytes = started ? rest.readUInt32BE(1) + 1 : rest.readUInt32BE(0);
    if (rest.length < frameBytes) return false;
    if (!started) started = rest.readUInt32BE(4) !== sslRequest;
    else if (asking.has(rest[0]!)) statements++;
    rest = rest.subarray(frameBytes);
    return true;
  };
  return {
    read(bytes: Buffer): void {
      rest = Buffer.concat([rest, bytes]);
      while (take());
    },
    get statements() {
      return statements;
    },
  };
}

// The first frame of a connection has no letter, and neither has the question for TLS before it.
const sslRequest = 80_877_103;
/** A plain query, and the execution of one that was prepared. */
const asking = new Set(["Q", "E"].map((letter) => letter.charCodeAt(0)));

const readyAndIdle = Buffer.from("Z\0\0\0\x05I", "latin1");

/** Whether the server has answered everything that it was sent, and holds no transaction open. */
export function endsIdle(answer: Buffer): boolean {
  return answer.subarray(-readyAndIdle.length).equals(readyAndIdle);
}
