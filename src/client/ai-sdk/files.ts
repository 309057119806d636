import type { Clock } from "../../base/clock.ts";
import { fileHashOf, fileUrl } from "../../protocol/file.ts";
import type { Part, UIMessage } from "../../protocol/message.ts";
import type { Client } from "../client.ts";
import type { OpenedFiles } from "../calls.ts";
import { asError } from "../http.ts";

/** The files of chats: uploaded before their message is sent, and shown by addresses that an `<img>` can read. */
export type ChatFiles = {
  /** A message as it is stored, with references in place of data URLs and of shown addresses. */
  stored(chatId: string, message: UIMessage): Promise<UIMessage>;
  /**
   * Messages as a page shows them. `onKnown` is called when their files can be shown, if that isn't known yet;
   * an unchanged message is the same object.
   */
  shown(chatId: string, messages: readonly UIMessage[], onKnown: () => void): readonly UIMessage[];
};

type Opened = {
  files: OpenedFiles | undefined;
  asking: boolean;
  /** When to ask again after a failure. */
  retryAtMs: number;
  shown: WeakMap<UIMessage, UIMessage>;
};

/** How long before its end an address is replaced. */
const renewMs = 5 * 60_000;
const retryMs = 5_000;
/** In the place of a file that can't be shown yet: an address that no browser complains about. */
const blank = "data:,";
const shownUrl = /\/v1\/files\/[^/]+\/([0-9a-f]{64})$/;

export function createChatFiles(client: Client, clock: Clock): ChatFiles {
  const chats = new Map<string, Opened>();

  const open = async (chatId: string, chat: Opened, onKnown: () => void): Promise<void> => {
    chat.asking = true;
    try {
      chat.files = await client.sessions.openFiles(chatId);
      chat.shown = new WeakMap();
    } catch {
      // The next update of the chat asks again.
      chat.retryAtMs = clock.now() + retryMs;
    }
    chat.asking = false;
    if (chat.files) onKnown();
  };

  return {
    async stored(chatId, message) {
      if (!message.parts.some(({ type }) => type === "file")) return message;
      const parts: Part[] = [];
      for (const part of message.parts) parts.push(await storedPart(client, chatId, part));
      return { ...message, parts };
    },
    shown(chatId, messages, onKnown) {
      if (!messages.some(hasFile)) return messages;
      const chat = chats.get(chatId) ?? {
        files: undefined,
        asking: false,
        retryAtMs: 0,
        shown: new WeakMap<UIMessage, UIMessage>(),
      };
      chats.set(chatId, chat);
      const nowMs = clock.now();
      const isKnown = chat.files !== undefined && chat.files.expiresAtMs - renewMs > nowMs;
      if (!isKnown && !chat.asking && nowMs >= chat.retryAtMs) void open(chatId, chat, onKnown);
      return messages.map((message) => {
        if (!hasFile(message)) return message;
        const known = chat.shown.get(message);
        if (known) return known;
        const parts = message.parts.map((part) =>
          fileHashOf(part) === undefined
            ? part
            : { ...part, url: chat.files?.urlOf(part) ?? blank },
        );
        const shown = { ...message, parts };
        chat.shown.set(message, shown);
        return shown;
      });
    },
  };
}

async function storedPart(client: Client, chatId: string, part: Part): Promise<Part> {
  const { type, url, filename, mediaType } = part;
  if (type !== "file" || typeof url !== "string") return part;
  const hash = shownUrl.exec(url)?.[1];
  if (hash !== undefined) return { ...part, url: fileUrl(hash) };
  if (!/^data:/i.test(url)) return part;
  const stored = await client.sessions.upload(chatId, bytesOf(url), {
    mediaType: typeof mediaType === "string" ? mediaType : "",
    ...(typeof filename === "string" && filename !== "" && { filename }),
  });
  return { ...part, ...stored };
}

/** Without `fetch`, which the policy of a page may not allow for data URLs. */
function bytesOf(url: string): Uint8Array<ArrayBuffer> {
  const comma = url.indexOf(",");
  const data = url.slice(comma + 1);
  try {
    if (!/;base64$/i.test(url.slice(0, comma))) {
      return new TextEncoder().encode(decodeURIComponent(data));
    }
    return Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
  } catch (error) {
    throw asError(error);
  }
}

function hasFile({ parts }: UIMessage): boolean {
  return parts.some((part) => fileHashOf(part) !== undefined);
}
