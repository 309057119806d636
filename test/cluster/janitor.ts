import { spawn } from "node:child_process";
import { once } from "node:events";

/** A process that puts things back when the test ends, also where the test is killed. */
export type Janitor = {
  /** Has it run this line of shell in the end, before all lines that it was given earlier. */
  inTheEnd(line: string): void;
  /** Has it do all that now, and waits for it. */
  close(): Promise<void>;
};

// Its input ends with the process that writes to it, however that ends.
const script = `all=
while IFS= read -r line; do all="$line
$all"; done
eval "$all"`;

export function startJanitor(): Janitor {
  // Of a group of its own, so that it survives a signal to the group of the test.
  const child = spawn("sh", ["-c", script], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  });
  const exited = once(child, "exit");
  child.unref();
  const input = child.stdin;
  input.on("error", () => {});
  // A process that has nothing else to do isn't kept by it.
  if ("unref" in input) (input as unknown as { unref(): void }).unref();
  return {
    inTheEnd: (line) => void input.write(`${line}\n`),
    async close() {
      child.ref();
      input.end();
      await exited;
    },
  };
}
