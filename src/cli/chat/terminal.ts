import process from "node:process";
import { createInterface, type Interface } from "node:readline";
import type { TranscriptOutput } from "./transcript.ts";

/** Where lines are typed and a conversation is shown, both at once on a terminal. */
export type ChatTerminal = {
  readonly output: TranscriptOutput;
  readonly lines: AsyncIterable<string>;
  /** Asks for a line, where somebody can see that. */
  prompt(): void;
  onInterrupt(listener: () => void): void;
  close(): void;
};

export function openTerminal(): ChatTerminal {
  const { stdin, stdout } = process;
  const isTerminal = stdin.isTTY === true && stdout.isTTY === true;
  const reader: Interface = createInterface({
    input: stdin,
    ...(isTerminal && { output: stdout, prompt: "> " }),
    terminal: isTerminal,
  });
  let isPrompting = false;
  let isOpen = false;
  const clear = () => {
    if (isPrompting) stdout.write("\r\u001b[K");
    isPrompting = false;
  };
  const end = () => {
    if (isOpen) stdout.write("\n");
    isOpen = false;
  };
  return {
    output: {
      line(text) {
        clear();
        end();
        stdout.write(`${text}\n`);
      },
      more(text) {
        clear();
        if (text === "") return;
        isOpen = true;
        stdout.write(text);
      },
      end,
    },
    lines: reader,
    prompt() {
      if (!isTerminal || isPrompting) return;
      end();
      isPrompting = true;
      reader.prompt(true);
    },
    onInterrupt(listener) {
      // A terminal in raw mode gives the key to the reader; a signal comes from elsewhere.
      reader.on("SIGINT", listener);
      process.on("SIGINT", listener);
    },
    close: () => reader.close(),
  };
}
