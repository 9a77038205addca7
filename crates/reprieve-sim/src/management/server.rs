//! The running mock: its listener, its rows and its refusals.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{self, Body};
use axum::http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use reprieve_core::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::connection::{Answered, Reset, accept, closed, listen};

/// The largest request that is read.
const REQUEST_BYTES_MAX: usize = 1 << 20;

const GRAPH: &str = "/providers/Microsoft.ResourceGraph/resources";

/// The most regions and sizes of a request for scores.
const SCORE_REGIONS_MAX: usize = 8;
const SCORE_SIZES_MAX: usize = 5;

/// An eviction rate: size, region, and the text of the bucket.
pub type RateRow = (&'static str, &'static str, &'static str);

/// A placement score: size, region, and its text.
pub type ScoreRow = (&'static str, &'static str, &'static str);

/// The mock's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many rows a page has. Default: 1,000.
    pub page_size: usize,
    /// The eviction rates. Default: a few, one of them with no text.
    pub rates: Vec<RateRow>,
    /// The scores. Default: a few, as the documentation prints them.
    pub scores: Vec<ScoreRow>,
    /// Whether the identity may read. Default: yes.
    pub reader: bool,
    /// Whether the identity may ask for scores. Default: yes.
    pub recommendations: bool,
    /// For how many VMs it gives scores at most; questions for more are refused. Default: 1,000, as Azure.
    pub scores_up_to: u64,
    /// Whether the service answers 429 to everything. Default: no.
    pub busy: bool,
    /// The token that every request has to have. Default: none.
    pub token: Option<&'static str>,
    /// A row of tables and scores that comes first and has none of their fields. Default: none.
    pub odd_row: Option<Value>,
    /// The past prices of every size, from when on and in US dollars. Default: one with a time, one without, and one
    /// without a price.
    pub past_prices: Value,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            page_size: 1_000,
            rates: vec![
                ("standard_d4s_v5", "westeurope", "0-5"),
                ("standard_d4s_v5", "northeurope", "20+"),
                ("standard_d2s_v5", "westeurope", ""),
            ],
            scores: vec![
                ("Standard_D4s_v5", "westeurope", "High"),
                ("Standard_D4s_v5", "northeurope", "Low"),
                ("Standard_D2s_v5", "westeurope", "Restricted SKU"),
                ("Standard_F16s", "westeurope", "Data Not Found"),
            ],
            reader: true,
            recommendations: true,
            scores_up_to: 1_000,
            busy: false,
            token: None,
            odd_row: None,
            past_prices: json!([
                { "effectiveDate": "2026-11-01T00:00:00Z", "priceUSD": 0.046 },
                { "priceUSD": "0.0512" },
                { "priceUSD": null },
            ]),
        }
    }
}

/// A running mock. It stops when dropped; [`stop`](Self::stop) waits until it has stopped.
#[derive(Debug)]
pub struct ManagementServer {
    app: Arc<App>,
    addr: SocketAddr,
    stopping: CancellationToken,
    tasks: TaskTracker,
    _stop: DropGuard,
}

#[derive(Debug)]
struct App {
    config: Config,
    requests: Mutex<Vec<(String, Value)>>,
}

impl ManagementServer {
    /// Starts a mock on a free port of this machine.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when there is none.
    pub async fn start(config: Config) -> Result<Self> {
        let (listener, addr) = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.map_err(|error| {
            let message = format!("can't listen: {error}");
            Error::new(ErrorKind::Unavailable, "start the mock of Azure Resource Manager", message)
                .with_source(error)
        })?;
        let app = Arc::new(App { config, requests: Mutex::default() });
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        let answer = {
            let app = Arc::clone(&app);
            move |request: Request<Incoming>| -> Answered { Box::pin(Arc::clone(&app).answer(request)) }
        };
        tasks.spawn(accept(listener, answer, stopping.clone(), tasks.clone()));
        tasks.close();
        info!(%addr, "mock of Azure Resource Manager listens");
        Ok(Self { app, addr, _stop: stopping.clone().drop_guard(), stopping, tasks })
    }

    /// Returns its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Returns the paths and bodies of the requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<(String, Value)> {
        self.app.requests().clone()
    }

    /// Stops the mock: it answers no more requests, and its port is free when this returns.
    pub async fn stop(self) {
        self.stopping.cancel();
        closed(&self.tasks, "the mock of Azure Resource Manager").await;
    }
}

impl App {
    fn requests(&self) -> MutexGuard<'_, Vec<(String, Value)>> {
        // No code panics while it holds the lock.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Reset> {
        let (head, incoming) = request.into_parts();
        let bytes = body::to_bytes(Body::new(incoming), REQUEST_BYTES_MAX).await.map_err(|_| Reset)?;
        let path = head.uri.path().to_owned();
        let asked: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        self.requests().push((path.clone(), asked.clone()));
        let answer = if self.config.busy {
            Err((StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"))
        } else if !self.is_signed_in(head.headers.get(header::AUTHORIZATION)) {
            Err((StatusCode::UNAUTHORIZED, "InvalidAuthenticationToken"))
        } else if head.method != Method::POST
            || !head.uri.query().is_some_and(|it| it.contains("api-version="))
        {
            Err((StatusCode::BAD_REQUEST, "MissingApiVersionParameter"))
        } else if path == GRAPH {
            self.table(&asked)
        } else if path.ends_with("/placementScores/spot/generate") {
            self.scores(&asked)
        } else {
            Err((StatusCode::NOT_FOUND, "InvalidResourceType"))
        };
        Ok(answered(answer))
    }

    fn is_signed_in(&self, header: Option<&header::HeaderValue>) -> bool {
        self.config.token.is_none_or(|token| header.is_some_and(|it| *it == format!("Bearer {token}")))
    }

    /// A page of the table that the query names.
    fn table(&self, asked: &Value) -> Result<Value, (StatusCode, &'static str)> {
        if !self.config.reader {
            return Err((StatusCode::FORBIDDEN, "AuthorizationFailed"));
        }
        let query = asked["query"].as_str().ok_or((StatusCode::BAD_REQUEST, "InvalidQuery"))?.to_lowercase();
        let is_history = query.contains("skuspotpricehistory");
        let named = |(size, region, _): &&RateRow| {
            [size, region].iter().all(|name| query.contains(&format!("'{}'", name.to_lowercase())))
        };
        let rows: Vec<_> = self.config.rates.iter().filter(named).collect();
        let skip = asked["options"]["$skipToken"].as_str().map_or(Ok(0), str::parse);
        let skip: usize = skip.map_err(|_| (StatusCode::BAD_REQUEST, "InvalidSkipToken"))?;
        let page: Vec<_> = rows.iter().skip(skip).take(self.config.page_size.max(1)).collect();
        let next = skip + page.len();
        let row = |(size, region, rate): &RateRow| {
            if is_history {
                json!({ "skuName": size, "location": region, "spotPrices": self.config.past_prices })
            } else {
                json!({ "skuName": size, "location": region, "spotEvictionRate": rate })
            }
        };
        let data: Vec<_> =
            self.config.odd_row.iter().cloned().chain(page.into_iter().map(|it| row(it))).collect();
        let mut answer = json!({
            "totalRecords": rows.len(), "count": data.len(), "data": data, "facets": [], "resultTruncated": "false",
        });
        if next < rows.len() {
            answer["$skipToken"] = next.to_string().into();
        }
        Ok(answer)
    }

    /// The scores of the sizes and regions of the request.
    fn scores(&self, asked: &Value) -> Result<Value, (StatusCode, &'static str)> {
        if !self.config.recommendations {
            return Err((StatusCode::FORBIDDEN, "AuthorizationFailed"));
        }
        let list = |field: &str, max: usize| {
            let list = asked[field].as_array().filter(|list| !list.is_empty() && list.len() <= max);
            list.cloned().ok_or((StatusCode::BAD_REQUEST, "InvalidParameter"))
        };
        let regions = list("desiredLocations", SCORE_REGIONS_MAX)?;
        let sizes = list("desiredSizes", SCORE_SIZES_MAX)?;
        let count = asked["desiredCount"].as_u64().filter(|count| *count <= self.config.scores_up_to);
        if count.is_none() || !asked["availabilityZones"].is_boolean() {
            return Err((StatusCode::BAD_REQUEST, "InvalidParameter"));
        }
        let wanted = |(size, region, _): &&ScoreRow| {
            regions.iter().any(|it| it == region) && sizes.iter().any(|it| it["sku"] == *size)
        };
        let score = |(sku, region, score): &ScoreRow| {
            let has_quota = *score == "High";
            json!({ "sku": sku, "region": region, "score": score, "isQuotaAvailable": has_quota })
        };
        let scores = self.config.scores.iter().filter(wanted).map(score);
        let scores: Vec<_> = self.config.odd_row.iter().cloned().chain(scores).collect();
        let mut answer = asked.clone();
        answer["placementScores"] = scores.into();
        Ok(answer)
    }
}

fn answered(answer: Result<Value, (StatusCode, &'static str)>) -> Response<Body> {
    let (status, body) = match answer {
        Ok(body) => (StatusCode::OK, body),
        Err((status, code)) => {
            (status, json!({ "error": { "code": code, "message": "refused by the mock" } }))
        }
    };
    let mut answer = Response::new(Body::from(body.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    answer
}
