import type { Json } from "../base/json.ts";

type ProviderMetadata = Record<string, Record<string, Json | undefined>>;
type Noted = { readonly providerMetadata?: ProviderMetadata };
type Call = Noted & {
  readonly toolCallId: string;
  readonly providerExecuted?: boolean;
  readonly toolMetadata?: { readonly [key: string]: Json | undefined };
  readonly dynamic?: boolean;
};
type NamedCall = Call & { readonly toolName: string; readonly title?: string };

/** The chunks that we know. `start-step` and the like carry nothing but their type. */
export type KnownChunk =
  | { readonly type: "start"; readonly messageId?: string; readonly messageMetadata?: unknown }
  | {
      readonly type: "finish";
      readonly finishReason?: FinishReason;
      readonly messageMetadata?: unknown;
    }
  | { readonly type: "abort"; readonly reason?: string }
  | { readonly type: "error"; readonly errorText: string }
  | { readonly type: "message-metadata"; readonly messageMetadata: unknown }
  | { readonly type: "start-step" }
  | { readonly type: "finish-step" }
  | { readonly type: "reset-step" }
  | ({ readonly type: "text-start"; readonly id: string } & Noted)
  | ({ readonly type: "text-delta"; readonly id: string; readonly delta: string } & Noted)
  | ({ readonly type: "text-end"; readonly id: string; readonly citations?: unknown } & Noted)
  | ({ readonly type: "reasoning-start"; readonly id: string } & Noted)
  | ({ readonly type: "reasoning-delta"; readonly id: string; readonly delta: string } & Noted)
  | ({ readonly type: "reasoning-end"; readonly id: string } & Noted)
  | ({ readonly type: "tool-input-start"; readonly inputEncoding?: "json" | "text" } & NamedCall)
  | {
      readonly type: "tool-input-delta";
      readonly toolCallId: string;
      readonly inputTextDelta: string;
    }
  | ({ readonly type: "tool-input-available"; readonly input: unknown } & NamedCall)
  | ({
      readonly type: "tool-input-error";
      readonly input: unknown;
      readonly errorText: string;
    } & NamedCall)
  | {
      readonly type: "tool-approval-request";
      readonly approvalId: string;
      readonly toolCallId: string;
      readonly approvalDescriptor?: unknown;
      readonly inputSchemaInput?: unknown;
      readonly reason?: string;
      readonly isAutomatic?: boolean;
      readonly signature?: string;
    }
  | ({
      readonly type: "tool-approval-response";
      readonly approvalId: string;
      readonly approved: boolean;
      readonly reason?: string;
      readonly providerExecuted?: boolean;
    } & Noted)
  | ({
      readonly type: "tool-output-available";
      readonly output: unknown;
      readonly preliminary?: boolean;
    } & Call)
  | ({ readonly type: "tool-output-error"; readonly errorText: string } & Call)
  | { readonly type: "tool-output-denied"; readonly toolCallId: string }
  | ({
      readonly type: "source-url";
      readonly sourceId: string;
      readonly url: string;
      readonly title?: string;
    } & Noted)
  | ({
      readonly type: "source-document";
      readonly sourceId: string;
      readonly mediaType: string;
      readonly title: string;
      readonly filename?: string;
    } & Noted)
  | ({ readonly type: "file"; readonly url: string; readonly mediaType: string } & Noted)
  | ({ readonly type: "reasoning-file"; readonly url: string; readonly mediaType: string } & Noted)
  | ({ readonly type: "custom"; readonly kind: `${string}.${string}` } & Noted)
  | { readonly type: "steering-message"; readonly id: string; readonly parts: readonly unknown[] }
  | DataChunk;

export type DataChunk = {
  readonly type: `data-${string}`;
  readonly id?: string;
  readonly data: unknown;
  readonly transient?: boolean;
};

export type FinishReason =
  | "stop"
  | "length"
  | "content-filter"
  | "tool-calls"
  | "error"
  | "interrupted"
  | "other";
