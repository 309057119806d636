/** Packages and globals that pages show and that aren't installed here, as far as they are used. */
declare module "openai" {
  export default class OpenAI {
    constructor(options?: { baseURL?: string; fetch?: typeof fetch });
    readonly responses: {
      create(
        body: { model: string; input: string },
        options?: { signal?: AbortSignal },
      ): Promise<{ output_text: string }>;
    };
  }
}

declare module "@anthropic-ai/sdk" {
  export default class Anthropic {
    constructor(options?: { fetch?: typeof fetch });
  }
}

declare module "@ai-sdk/openai" {
  export function openai(
    model: string,
  ): Parameters<typeof import("ai").wrapLanguageModel>[0]["model"];
}

declare const Deno: { serve(handler: (request: Request) => Promise<Response>): unknown };
