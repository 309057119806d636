import { isJsonObject } from "../base/json.ts";
import { checkPromptBytes, type ReferredFiles } from "../steps/model-calls.ts";
import type { Params } from "./model.ts";

type Fields = Readonly<Record<string, unknown>>;

/** What a model takes as addresses, and those of stored files beside: else the AI SDK would fetch them. */
export async function withReferences(
  supported: unknown,
  { pattern }: ReferredFiles,
): Promise<Record<string, unknown>> {
  const own = (await supported) as Record<string, readonly RegExp[]> | undefined;
  return { ...own, "*/*": [...(own?.["*/*"] ?? []), pattern] };
}

/** The same call with the bytes of the stored files that its prompt refers to. */
export async function withBytes<Given extends Params>(
  params: Given,
  files: ReferredFiles | undefined,
): Promise<Given> {
  const { prompt } = params as { readonly prompt?: unknown };
  if (!files || !Array.isArray(prompt)) return params;
  const refers = (message: unknown): boolean => {
    const { content } = Object(message) as Fields;
    return Array.isArray(content) && content.some((part) => referenceIn(part, files) !== undefined);
  };
  if (!prompt.some(refers)) return params;
  let total = 0;
  // A file that is in several messages is read once.
  const known = new Map<string, Uint8Array>();
  const bytesOf = async (url: string): Promise<Uint8Array> => {
    const bytes = known.get(url) ?? (await files.read(url));
    known.set(url, bytes);
    total += bytes.length;
    checkPromptBytes(total);
    return bytes;
  };
  const messages: unknown[] = [];
  for (const message of prompt as unknown[]) {
    if (!refers(message)) {
      messages.push(message);
      continue;
    }
    const parts: unknown[] = [];
    for (const part of (message as { readonly content: unknown[] }).content) {
      const url = referenceIn(part, files);
      if (url === undefined) parts.push(part);
      else {
        const bytes = await bytesOf(url);
        const { data } = part as Fields;
        // As the version of the interface has it that this part is of.
        const asTagged = isJsonObject(data) && data["type"] === "url";
        parts.push({
          ...(part as Fields),
          data: asTagged ? { type: "data", data: bytes } : bytes,
        });
      }
    }
    messages.push({ ...(message as Fields), content: parts });
  }
  return { ...params, prompt: messages };
}

/** The address of the stored file that a part of a prompt is; undefined if it is anything else. */
function referenceIn(part: unknown, { pattern }: ReferredFiles): string | undefined {
  const { type, data } = Object(part) as Fields;
  if (type !== "file") return undefined;
  const { type: kind, url } = Object(data) as Fields;
  const address = kind === "url" ? url : data;
  if (typeof address !== "string" && !(address instanceof URL)) return undefined;
  const text = String(address);
  return pattern.test(text) ? text : undefined;
}
