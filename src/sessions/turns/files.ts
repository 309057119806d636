import type { Files } from "../../files/files.ts";
import { createFileReader } from "../../files/reader.ts";
import { fileHashOf, filePrefix } from "../../protocol/file.ts";
import type { Part, UIMessage } from "../../protocol/message.ts";
import { checkPromptBytes, type ReferredFiles } from "../../steps/model-calls.ts";

/** What turns read files by. */
export type TurnFiles = Pick<Files, "find" | "read"> & {
  /** The addresses of files for an agent elsewhere; undefined if where this server is reached isn't known. */
  readonly urlFor: (
    tenant: string,
    sessionId: string,
  ) => Promise<((hash: string) => string) | undefined>;
};

/** The files of a conversation, for an agent in code. */
export type AgentFiles = {
  /** The bytes of a part of type `file` whose `url` is a reference. */
  read(part: Part): Promise<Uint8Array>;
  /** The same, piece by piece. */
  stream(part: Part): ReadableStream<Uint8Array>;
  /**
   * The messages with their stored files within them, as `convertToModelMessages` takes them. Rejects where
   * they come to more than 32 MiB: leave older messages out.
   */
  inline<Message>(messages: readonly Message[]): Promise<Message[]>;
};

/** Reads again while the store is away, as long as what it is for goes on. */
export type WhileAway = <Found>(read: () => Promise<Found>) => Promise<Found>;

/** While the store is away an agent waits for its files, as it does for its history. */
export function createAgentFiles(
  files: TurnFiles,
  sessionId: string,
  whileAway: WhileAway,
): AgentFiles {
  const waiting: Pick<TurnFiles, "find" | "read"> = {
    find: (ownerId, hash) => whileAway(() => files.find(ownerId, hash)),
    read: files.read,
  };
  const reader = createFileReader(waiting, sessionId, "session");
  const read = (part: Part) => whileAway(() => reader.read(part));

  return {
    read,
    stream: reader.stream,
    async inline<Message>(messages: readonly Message[]): Promise<Message[]> {
      // A file that is in several messages is read once.
      const known = new Map<string, Promise<string>>();
      let bytes = 0;
      const urlOf = async (hash: string, part: Part): Promise<string> => {
        const { size, mediaType } = await reader.find(hash);
        bytes += size;
        checkPromptBytes(bytes);
        return `data:${mediaType};base64,${Buffer.from(await read(part)).toString("base64")}`;
      };
      const inlined: Message[] = [];
      for (const message of messages) {
        const { parts } = message as unknown as UIMessage;
        if (!parts.some((part) => fileHashOf(part) !== undefined)) {
          inlined.push(message);
          continue;
        }
        const changed: Part[] = [];
        for (const part of parts) {
          const hash = fileHashOf(part);
          if (hash === undefined) {
            changed.push(part);
            continue;
          }
          const url = known.get(hash) ?? urlOf(hash, part);
          known.set(hash, url);
          changed.push({ ...part, url: await url });
        }
        inlined.push({ ...message, parts: changed });
      }
      return inlined;
    },
  };
}

/** The files of a conversation, for calls of models whose prompts refer to them. */
export function referredFiles(
  files: TurnFiles,
  sessionId: string,
  whileAway: WhileAway,
): ReferredFiles {
  const { read } = createAgentFiles(files, sessionId, whileAway);
  return {
    pattern: new RegExp(`^${filePrefix}[0-9a-f]{64}$`),
    read: (url) => read({ type: "file", url }),
  };
}

/** The messages with addresses that an agent elsewhere can read, if this server has one. */
export async function withFileUrls(
  files: TurnFiles,
  { tenant, sessionId }: { readonly tenant: string; readonly sessionId: string },
  messages: readonly UIMessage[],
): Promise<readonly UIMessage[]> {
  const hasFile = ({ parts }: UIMessage) => parts.some((part) => fileHashOf(part) !== undefined);
  if (!messages.some(hasFile)) return messages;
  const urlOf = await files.urlFor(tenant, sessionId);
  if (!urlOf) return messages;
  return messages.map((message) =>
    hasFile(message)
      ? {
          ...message,
          parts: message.parts.map((part) => {
            const hash = fileHashOf(part);
            return hash === undefined ? part : { ...part, url: urlOf(hash) };
          }),
        }
      : message,
  );
}
