export type Fetch = (url: string, init?: RequestInit) => Promise<Response>;

export const networkFetch: Fetch = (url, init) => fetch(url, init);
