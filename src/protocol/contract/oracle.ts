import { createUIMessageStream, type UIMessage as AiMessage, type UIMessageChunk } from "ai";
import type { Chunk } from "../chunk.ts";
import type { UIMessage } from "../message.ts";

/**
 * What the AI SDK itself makes of chunks: the message as far as it came, how many chunks it took, and
 * whether it threw at the next.
 */
export async function assembledByAi(
  chunks: readonly Chunk[],
  { messageId, initial }: { messageId: string; initial?: UIMessage },
): Promise<{ message: unknown; taken: number; threw: boolean }> {
  let message: unknown;
  let threw = false;
  let taken = 0;
  const stream = createUIMessageStream({
    originalMessages: initial === undefined ? [] : [structuredClone(initial) as AiMessage],
    generateId: () => messageId,
    execute: ({ writer }) => {
      for (const chunk of chunks) writer.write(structuredClone(chunk) as UIMessageChunk);
    },
    onEnd: (end) => {
      message = end.responseMessage;
    },
  });
  const reader = stream.getReader();
  try {
    while (!(await reader.read()).done) taken++;
  } catch {
    threw = true;
  }
  return { message: plain(message), taken, threw };
}

/** As JSON carries it: without what is undefined. */
export function plain(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}
