import process from "node:process";
import { createInterface, type Interface } from "node:readline";
import type { TranscriptOutput } from "./transcript.ts";

/** Reads lines and shows a conversation, both at once on a terminal. */
export type ChatTerminal = {
  readonly output: TranscriptOutput;
  readonly lines: AsyncIterable<string>;
  /** Shows the prompt, on a terminal only. */
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
      // In raw mode the reader gets Ctrl-C; other processes send the signal.
      reader.on("SIGINT", listener);
      process.on("SIGINT", listener);
    },
    close: () => reader.close(),
  };
}
