// Requests to the node's admin API.

let token = null;
let askForToken = async () => null;
/** Whether the reader was asked for a token and gave none. */
let declined = false;

/** Sets the function that asks the reader for a token; it returns null if there is none. */
export function onTokenWanted(ask) { askForToken = ask; }

/** Forgets the token. It is only ever kept in this page's memory. */
export function forgetToken() { token = null; }

/** Lets the next request ask for a token again. */
export function askAgain() { declined = false; }

export const wasDeclined = () => declined;

export const hasToken = () => token !== null;

/** The node answered with an error. */
export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

/** The node did not answer. */
export class Away extends Error {}

async function send(method, path, body) {
  const headers = {};
  if (token !== null) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store', credentials: 'omit', redirect: 'error', signal: AbortSignal.timeout(8000),
    });
  } catch {
    throw new Away('the node does not answer');
  }
  const text = await response.text().catch(() => { throw new Away('the node does not answer'); });
  if (response.ok) return text === '' ? null : JSON.parse(text);
  let message = text;
  try { message = JSON.parse(text).error; } catch { /* not JSON: a proxy's page, perhaps */ }
  throw new Refused(response.status, message || `status ${response.status}`);
}

/** Sends a request; asks for a token, once, where one is needed. */
async function call(method, path, body) {
  try {
    return await send(method, path, body);
  } catch (error) {
    const wanted = error instanceof Refused &&
      (error.status === 401 || (error.status === 403 && method !== 'GET' && hasToken()));
    // Requests that the page makes by itself do not ask twice.
    if (!wanted || (declined && method === 'GET')) throw error;
    const given = await askForToken(error.message);
    declined = given === null;
    if (declined) throw error;
    token = given;
    return send(method, path, body);
  }
}

export const get = (path) => call('GET', path);
export const put = (path, body) => call('PUT', path, body);
export const segment = encodeURIComponent;
